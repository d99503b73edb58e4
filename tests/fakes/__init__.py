"""Stand-ins for hosted services: each speaks the vendor's wire format, and misbehaves like it on demand."""
