"""A SentencePiece model of ordinary text, laid out as BigBird's own."""

import io

import sentencepiece


def text_model(text: str, vocabulary: int) -> bytes:
    """Padding, end, begin, unknown; then [CLS] [SEP] [MASK]; then up to `vocabulary` pieces in all."""
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text] * 20),
        model_writer=stream,
        vocab_size=vocabulary,
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        user_defined_symbols=["[CLS]", "[SEP]", "[MASK]"],
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return stream.getvalue()
