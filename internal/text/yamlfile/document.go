// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Kind describes a kind of file, for messages about a whole file.
type Kind struct {
	// Noun names the kind, with its article: "a configuration".
	Noun string
	// Needs names the content that an empty file lacks, to follow "the file is empty; it needs".
	Needs string
	// MaxBytes limits the file's size, so that a wrong file (a device, a disk image) does no harm. It is a multiple of
	// a mebibyte.
	MaxBytes int
}

// Document returns the root node of the single YAML document in data. It returns nil if it has reported a problem.
func (f *File) Document(data []byte, kind Kind) *yaml.Node {
	root, problem := document(data, kind)
	if root == nil {
		problem.File = f.Name
		f.Problems = append(f.Problems, problem)
	}
	return root
}

// document returns the root node, or a problem without the file's name.
func document(data []byte, kind Kind) (*yaml.Node, Problem) {
	if len(data) > kind.MaxBytes {
		return nil, Problem{Message: fmt.Sprintf("larger than %d MiB; this is hardly %s", kind.MaxBytes>>20, kind.Noun)}
	}
	empty := Problem{Message: "the file is empty; it needs " + kind.Needs}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, empty
	case err != nil:
		return nil, syntaxProblem(err)
	}
	var second yaml.Node
	switch err := decoder.Decode(&second); {
	case errors.Is(err, io.EOF) && doc.Content[0].Tag == "!!null":
		return nil, empty
	case errors.Is(err, io.EOF):
		return doc.Content[0], Problem{}
	case err != nil:
		return nil, syntaxProblem(err)
	}
	return nil, Problem{Line: second.Line, Message: "a second YAML document starts here; keep one in a file"}
}

var yamlError = regexp.MustCompile(`(?s)^(?:yaml: )?(?:line (\d+): )?(.*)$`)

// splitError splits the line (0: none) off a message of the YAML library.
func splitError(message string) (line int, text string) {
	match := yamlError.FindStringSubmatch(message)
	line, _ = strconv.Atoi(match[1]) // no line in the message, or too many digits: 0
	return line, match[2]
}

// syntaxProblem converts the YAML library's error for a text that is no YAML.
func syntaxProblem(err error) Problem {
	line, text := splitError(err.Error())
	return Problem{Line: line, Message: "not YAML: " + text}
}
