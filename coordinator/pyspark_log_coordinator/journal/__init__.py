"""The journal: numbered entries that are each created once, on one store or agreed upon by several."""
