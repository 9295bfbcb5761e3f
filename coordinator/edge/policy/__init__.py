"""Policy decisions about calls, made from memory."""
