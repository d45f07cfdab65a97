// SPDX-License-Identifier: Apache-2.0

// Package yamlfile reads the YAML files that a person writes, strictly: an unknown key, a value of the wrong kind or a
// second document is a problem with file, line and field, and all problems of a file are reported at once. It knows
// nothing of a file's meaning.
//
// There are two ways to read a file. Document and the File's Mapping, Sequence and
// Scalar walk the nodes, where each value has rules of its own (a configuration).
// File.Decode fills Go structs by their yaml tags, where the library's rules are
// enough (a suite, a profile).
package yamlfile
