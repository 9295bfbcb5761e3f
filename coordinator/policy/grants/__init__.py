"""Which agent may call which tool: grants, their lengths, previews and edits."""
