//! Learning-rate schedules and the scalars of an optimizer step.
