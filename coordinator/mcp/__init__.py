"""The Model Context Protocol: its messages, registered servers, hosted processes and the gateway."""
