// SPDX-License-Identifier: Apache-2.0

// Command columns names the lines of Go and C files that have more than 120 columns; a tab counts as four. A line of Go
// may be longer by the text of a string, which can be found by searching for it as a whole.
package main

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"strings"
	"unicode/utf8"
)

const (
	mostColumns = 120
	tabColumns  = 4
)

func main() {
	long := false
	for _, file := range os.Args[1:] {
		source, err := os.ReadFile(file)
		if err != nil {
			fmt.Fprintln(os.Stderr, "columns:", err)
			os.Exit(2)
		}
		for _, line := range longLines(source, strings.HasSuffix(file, ".go")) {
			fmt.Fprintf(os.Stderr, "%s:%d: has %d columns, of at most %d\n", file, line.number, line.columns,
				mostColumns)
			long = true
		}
	}
	if long {
		os.Exit(1)
	}
}

// longLine is a line that has too many columns, by its number from 1.
type longLine struct{ number, columns int }

// longLines returns the lines of a file that are too long. Of Go, it leaves out the directives of tools, which cannot
// be broken, and lines that would fit without the strings in them.
func longLines(source []byte, isGo bool) []longLine {
	var long []longLine
	strings := map[int]int{}
	if isGo {
		strings = stringColumns(source)
	}
	for i, line := range bytes.Split(source, []byte("\n")) {
		number, columns := i+1, columnsOf(line)
		if columns-strings[number] <= mostColumns || isGo && bytes.HasPrefix(line, []byte("//go:")) {
			continue
		}
		long = append(long, longLine{number, columns})
	}
	return long
}

// stringColumns returns how many columns of each line are in strings.
func stringColumns(source []byte) map[int]int {
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0)
	inStrings := map[int]int{}
	for {
		pos, kind, _ := s.Scan()
		if kind == token.EOF {
			return inStrings
		}
		if kind != token.STRING {
			continue
		}
		// Not the scanner's text: it has no carriage returns of raw strings.
		offset, first := file.Offset(pos), file.Line(pos)
		for i, part := range bytes.Split(source[offset:endOfString(source, offset)], []byte("\n")) {
			inStrings[first+i] += columnsOf(part)
		}
	}
}

// endOfString returns the offset behind the string that begins at an offset.
func endOfString(source []byte, offset int) int {
	quote := source[offset]
	for i := offset + 1; i < len(source); i++ {
		switch {
		case source[i] == quote:
			return i + 1
		case source[i] == '\\' && quote == '"':
			i++
		}
	}
	return len(source)
}

func columnsOf(text []byte) int {
	return utf8.RuneCount(text) + (tabColumns-1)*bytes.Count(text, []byte("\t"))
}
