# bigbird-dna, from a genome to scored promoters and a report; without --configfile the demo:
#
#     snakemake --cores 2
#     snakemake --cores 2 --configfile workflow/config/yeast.yaml
#     snakemake --cores 2 nlp_demo

import sys

from bigbird_dna.config.safe_yaml import read_values
from bigbird_dna.errors import ConfigError

# Targets of the tasks on text have a separate default configuration; jobs on other machines get their rule as an argument.
DEFAULT = "nlp" if any(word.startswith("nlp_") for word in sys.argv[1:]) else "demo"

# Not below a configuration of the user's own: keys which that one leaves out have the package's defaults.
if not workflow.overwrite_configfiles:

    configfile: workflow.source_path(f"workflow/config/{DEFAULT}.yaml")


# Snakemake's own reader accepts keys that are given twice.
try:
    for path in workflow.overwrite_configfiles:
        read_values(path)
except ConfigError as error:
    sys.exit(f"bigbird-dna: error: {error}")


module bigbird_dna:
    snakefile:
        "workflow/Snakefile"
    config:
        config


use rule * from bigbird_dna
