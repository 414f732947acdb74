//! Game records in SGF.

use protocols::sgf::{GameFile, Tree, read, write};

/// Checks that any bytes are a tree that is read back as written, with a main line that is a record read back as
/// written; or are refused with an offset in the input, which has at most three times the bytes in UTF-8.
pub(crate) fn check(bytes: &[u8]) {
    let tree = match Tree::parse(bytes) {
        Ok(tree) => tree,
        Err(error) => {
            assert!(error.offset <= 3 * bytes.len(), "{error}");
            assert_eq!(read(bytes), Err(error));
            return;
        }
    };
    let text = tree.to_string();
    let again = Tree::parse(text.as_bytes()).expect("a tree that was written is read");
    assert_eq!(again.nodes().len(), tree.nodes().len());
    assert_eq!(again.to_string(), text);
    match read(bytes) {
        Ok(file) => assert_eq!(read(write(&file).as_bytes()).map(without_notes), Ok(without_notes(file))),
        Err(error) => assert!(error.offset <= 3 * bytes.len(), "{error}"),
    }
}

/// Returns what a file holds, without the remarks on the text that was read.
fn without_notes(file: GameFile) -> GameFile {
    GameFile { notes: Vec::new(), rest: None, ..file }
}

/// Returns records of every game.
#[allow(dead_code, reason = "used by the test of the corpus alone")]
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let files = [
        "(;FF[4]CA[UTF-8]GM[1]SZ[9]KM[6.5]HA[2]AB[cc][gg]PB[A \\] b]PW[]RE[W+3.5]PL[W];W[gc](;B[cg];W[];B[tt])(;B[aa]))",
        "(;GM[2]SZ[8]RE[0];B[dc];W[])",
        "(;GM[4]SZ[15:20]RE[B+];B[hh]C[a\\\r\nb:\\: \t];W[ii])",
        "(;GM[11]RE[?];B[a2];W[swap-pieces];B[D1];W[resign])",
        "(;AddBlack[aa:cc]AE[bb]AW[bb:bb];B[]N[x](;W[dd](;B[ee]))(;W[ff]))",
        "junk (;)",
        "(\r\nTE[title]KO[6,5]\r\n;b[ee]()x[(W[cc];AB[aa];B[gc])",
    ];
    let in_charsets: [&[u8]; 3] = [
        b"(;SZ[9]KM[375]CA[Big5]PB[\xb3\x5c];B[ee]C[\xa5\x5d])",
        b"(;PB[J\xf6rg]KM[6\xbd];B[ee])",
        b"\xff\xfe(\0;\0B\0[\0e\0e\0]\0)\0",
    ];
    files.iter().map(|file| file.as_bytes()).chain(in_charsets).map(<[u8]>::to_vec).collect()
}
