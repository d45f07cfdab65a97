// SPDX-License-Identifier: Apache-2.0

// Package yamlfile reads YAML files written by people, strictly: an unknown key, a value of the wrong kind or a second
// document is a problem with file, line and field. It reports all problems of a file at once. It knows nothing of a
// file's meaning.
//
// There are two ways to read a file. Document and the File's Mapping, Sequence and Scalar walk the nodes, for values
// with their own rules (a configuration). File.Decode fills Go structs by their yaml tags, where the library's rules
// are sufficient (a suite, a profile).
package yamlfile
