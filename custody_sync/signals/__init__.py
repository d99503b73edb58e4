"""What custody-sync shows of itself while it works: spans, metrics and log lines, none with memory text."""
