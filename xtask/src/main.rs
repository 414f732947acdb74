//! Every chore of the repository: libtorch, train, test, ci, layers, tidy.
fn main() {}
