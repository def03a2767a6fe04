"""Classification of documents and of pairs of sentences, from [CLS] (App. E.4)."""
