# bigbird-dna, from a genome to scored promoters and a report; the demo, unless told otherwise:
#
#     snakemake --cores 2
#     snakemake --cores 2 --configfile workflow/config/yeast.yaml

# Not below a configuration of the user's own: keys which that one leaves out have the package's defaults.
if not workflow.overwrite_configfiles:

    configfile: workflow.source_path("workflow/config/demo.yaml")


module bigbird_dna:
    snakefile:
        "workflow/Snakefile"
    config:
        config


use rule * from bigbird_dna
