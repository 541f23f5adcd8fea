"""How results are shown: tables, figures, pages."""
