// SPDX-License-Identifier: Apache-2.0

package results

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
)

// Errors that a caller of Load may want to distinguish.
var (
	// ErrTruncated means that a results file ends before its JSON does.
	ErrTruncated = errors.New("the file ends in the middle")
	// ErrSchema means that a results file has a schema other than Schema.
	ErrSchema = errors.New("unknown schema")
	// ErrInvalid means that a run breaks the contract; see Validate.
	ErrInvalid = errors.New("not a valid run")
)

// Load reads and validates the results file at path, which may be compressed by gzip. Its errors name the file and,
// where the JSON is at fault, the line and column. Errors: that of the file system, ErrTruncated, ErrSchema,
// ErrInvalid, or one about the JSON.
func Load(path string) (*Run, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading results: %w", err)
	}
	run, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("reading results: %s%w", path, err)
	}
	return run, nil
}

// Decode decodes and validates the content of a results file. Errors: as Load's.
func Decode(data []byte) (*Run, error) {
	run, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("reading results%w", err)
	}
	return run, nil
}

// parse decodes data. The text of its error begins with ":", because it follows a file name.
func parse(data []byte) (*Run, error) {
	data, err := decompress(data)
	if err != nil {
		return nil, err
	}
	var head struct {
		Schema *int `json:"schema"`
	}
	if err = decode(data, &head); err != nil {
		return nil, err
	}
	switch {
	case head.Schema == nil:
		return nil, fmt.Errorf(": %w: there is no \"schema\"; is this a results.json of `jeoul bench`?", ErrSchema)
	case *head.Schema != Schema:
		return nil, fmt.Errorf(": %w %d: this jeoul reads schema %d; use the jeoul that wrote the file", ErrSchema,
			*head.Schema, Schema)
	}
	var file struct {
		Run
		summary
	}
	if err = decode(data, &file); err != nil {
		return nil, err
	}
	run := file.Run
	if run.Summarised {
		trials, err := file.trials()
		if err != nil {
			return nil, fmt.Errorf(": %w", err)
		}
		run.Trials = append(run.Trials, trials...)
	}
	if err = run.Validate(); err != nil {
		return nil, fmt.Errorf(": %w", err)
	}
	return &run, nil
}

// maxBytes bounds the size of a compressed file's content: a run of 10,000 trials with samples has some 200 MB.
const maxBytes = 1 << 30

// decompress returns data, or its content where it is compressed by gzip.
func decompress(data []byte) ([]byte, error) {
	if !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return data, nil
	}
	reader, err := gzip.NewReader(bytes.NewReader(data))
	var plain []byte
	if err == nil {
		plain, err = io.ReadAll(io.LimitReader(reader, maxBytes+1))
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf(": %w: it was cut off or copied incompletely; copy it again or repeat the run",
			ErrTruncated)
	case err != nil:
		return nil, fmt.Errorf(": decompressing: %w", err)
	case len(plain) > maxBytes:
		return nil, fmt.Errorf(": more than %d bytes when decompressed; is this a results file of `jeoul bench`?",
			maxBytes)
	}
	return plain, nil
}

// decode decodes exactly one JSON value; its error has the position of the fault.
func decode(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	err := decoder.Decode(into)
	if err == nil {
		if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
			return fmt.Errorf(":%s: more text follows the end of the run", position(data, decoder.InputOffset()))
		}
		return nil
	}
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf(":%s: %w: it was cut off or copied incompletely; copy it again or repeat the run",
			position(data, int64(len(data))), ErrTruncated)
	case errors.As(err, &syntax):
		return fmt.Errorf(":%s: not JSON%s: %w", position(data, syntax.Offset-1), lastField(data[:syntax.Offset-1]), err)
	case errors.As(err, &kind):
		return fmt.Errorf(":%s: %s cannot hold a JSON %s", position(data, kind.Offset), kind.Field, kind.Value)
	}
	return fmt.Errorf(":%s: %w", position(data, decoder.InputOffset()), err)
}

// fieldBefore matches the name of the field in whose value a text ends.
var fieldBefore = regexp.MustCompile(`("[^"\\]*")\s*:[^:"]*$`)

// lastField names the field whose value is not JSON, such as NaN; empty where the fault is not in a value.
func lastField(before []byte) string {
	match := fieldBefore.FindSubmatch(before[max(0, len(before)-200):])
	if match == nil {
		return ""
	}
	return fmt.Sprintf(", in %s", match[1])
}

// position turns a byte offset into "line:column", both counted from 1.
func position(data []byte, offset int64) string {
	before := data[:min(max(offset, 0), int64(len(data)))]
	line := bytes.Count(before, []byte{'\n'}) + 1
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return fmt.Sprintf("%d:%d", line, column)
}

// Save validates the run and puts it at path in one step: after a crash or with a full disk, a reader sees either the
// complete old file or the complete new one.
func (r *Run) Save(path string) error {
	data, err := r.encode()
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := WriteFile(path, data); err != nil {
		return fmt.Errorf("writing results: %w; the file as it was before is untouched", err)
	}
	return nil
}

// Write validates the run and writes it to w, as Save writes it to a file.
func (r *Run) Write(w io.Writer) error {
	data, err := r.encode()
	if err == nil {
		_, err = w.Write(data)
	}
	if err != nil {
		return fmt.Errorf("writing results: %w", err)
	}
	return nil
}

// encode returns the content of a results file.
func (r *Run) encode() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(r, "", "  ")
	return append(data, '\n'), err
}

// WriteFile puts data at path: it writes a file in the same directory, syncs it and renames it over path, so that path
// never holds a part of data.
func WriteFile(path string, data []byte) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			file.Close()
			os.Remove(file.Name())
		}
	}()
	if _, err := file.Write(data); err != nil {
		return err
	}
	if err := file.Chmod(0o644); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
