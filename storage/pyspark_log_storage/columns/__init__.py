"""The columns of stored rows: types, schemas, their evolution, and how users write them."""
