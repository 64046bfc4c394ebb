"""Stores on Postgres. SQLAlchemy Core writes the statements, asyncpg runs them."""
