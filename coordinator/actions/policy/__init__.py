"""Writing policy: grants, rules, marks, brakes and budgets."""
