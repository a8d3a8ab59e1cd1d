"""Parts of `explain_sentences.py`: the encoder, its attribution, the measurements and the report."""
