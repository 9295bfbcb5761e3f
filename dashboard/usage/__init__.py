"""The pages of usage: tokens and costs, activity, and the prices of models."""
