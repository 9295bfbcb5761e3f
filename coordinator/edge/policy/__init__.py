"""What policy says of a call, answered from memory."""
