"""What people see: tables, pictures, progress."""
