"""Bits per base of a language model beside those of simpler predictors: table and figures."""
