"""The timeline page's own rules: what its URL says, and how rows are made ready for its templates."""
