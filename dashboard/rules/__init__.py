"""The pages of rules: editing them, testing rules and grants on recorded calls, and suggestions."""
