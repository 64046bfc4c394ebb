"""What tests share: a real Postgres, the real server on a free port, and the fakes that are allowed."""
