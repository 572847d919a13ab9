"""Write or read the texts with which a system searches in place of its queries."""
