"""Actions that write policy: grants, rules, marks, brakes and budgets."""
