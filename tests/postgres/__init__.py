"""PostgreSQL of the local stack, PgBouncer before it, and the variants that use them: on real servers."""
