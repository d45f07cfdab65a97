// SPDX-License-Identifier: Apache-2.0

// Command fontmetrics writes the fonts that texts of charts are measured with into the current directory, compressed
// and without their outlines: a reader's own font draws the texts, and outlines are nine tenths of a font.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"os"

	"codeberg.org/go-fonts/liberation/liberationsansbold"
	"codeberg.org/go-fonts/liberation/liberationsansregular"
)

func main() {
	for name, font := range map[string][]byte{"regular": liberationsansregular.TTF, "bold": liberationsansbold.TTF} {
		if err := write(name+".ttf.gz", font); err != nil {
			fmt.Fprintf(os.Stderr, "fontmetrics: write the measures of Liberation Sans, %s: %v\n", name, err)
			os.Exit(1)
		}
	}
}

// kept are the tables (OpenType 1.9, "Font tables") that a text's width depends on, and those without which a font is
// rejected. Of glyf, whose outlines loca locates, nothing is kept: every glyph is empty. Of post, only the head is
// kept.
var kept = []string{"GPOS", "OS/2", "cmap", "glyf", "head", "hhea", "hmtx", "loca", "maxp", "name", "post"}

// Lengths in bytes: of the head of a font, of each entry of its table of tables, and of the head of post.
const (
	headLength  = 12
	entryLength = 16
	postLength  = 32
)

// table returns a table's content in the smaller font.
func table(tag string, content []byte) []byte {
	switch tag {
	case "glyf":
		return nil
	case "loca":
		return make([]byte, len(content))
	case "post":
		content = bytes.Clone(content[:postLength])
		// Version 3.0 names no glyphs.
		binary.BigEndian.PutUint32(content, 0x00030000)
	}
	return content
}

// reduce returns a font with the kept tables. Their check sums stay 0: only programs that install fonts use them.
func reduce(font []byte) []byte {
	tables := map[string][]byte{}
	for i := range int(binary.BigEndian.Uint16(font[4:])) {
		entry := font[headLength+entryLength*i:][:entryLength]
		at, length := binary.BigEndian.Uint32(entry[8:]), binary.BigEndian.Uint32(entry[12:])
		tables[string(entry[:4])] = font[at : at+length]
	}
	head := binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(font))
	head = binary.BigEndian.AppendUint16(head, uint16(len(kept)))
	head = append(head, make([]byte, headLength-len(head))...)
	var body []byte
	for _, tag := range kept {
		content := table(tag, tables[tag])
		head = binary.BigEndian.AppendUint32(append(head, tag...), 0)
		head = binary.BigEndian.AppendUint32(head, uint32(headLength+entryLength*len(kept)+len(body)))
		head = binary.BigEndian.AppendUint32(head, uint32(len(content)))
		body = append(body, content...)
		// A table begins at a multiple of four bytes.
		body = append(body, make([]byte, -len(body)&3)...)
	}
	return append(head, body...)
}

// write writes the smaller font into a file.
func write(path string, font []byte) error {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(reduce(font)); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, packed.Bytes(), 0o644)
}
