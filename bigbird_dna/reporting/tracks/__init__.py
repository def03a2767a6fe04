"""Reports of AUROC and AUPRC by track: files of predictions and labels in, tables and a page out.

`report` makes one. It opens the `arrays`; `judging` reads them in `slices` of tracks and gets the figures
and curves of each; they go into `tables`, beside those that were `published`, and onto the `page`.
"""
