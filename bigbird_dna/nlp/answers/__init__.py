"""Question answering: answers, supporting facts and candidates in long documents (App. E.2)."""
