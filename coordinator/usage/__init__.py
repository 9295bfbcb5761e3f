"""What requests to models used: amounts, prices, and sums of them. Only reads; `actions.usage` writes."""
