"""Text -> sentences -> tokens -> integer ids. Nothing here knows of a model or needs torch."""
