"""Pretraining: what is drawn, what is learnt from it, and what it is measured on (App. F.1)."""
