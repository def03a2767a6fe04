"""Question answering in long documents (App. E): HotpotQA, Natural Questions, TriviaQA and WikiHop."""
