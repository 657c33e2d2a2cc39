//! Quoting for the shell and for #SBATCH lines: the only place that does it.
