//! What the user wrote: every scalar carries its place in the file.
