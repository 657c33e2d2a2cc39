//! `haul launch`: one virtual node on this machine, parent of its rank shims.
