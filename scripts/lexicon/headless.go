// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// headless matches the beginning of a comment that has “what” where a noun of the field belongs: as its first word, or
// after a name and a verb.
var headless = regexp.MustCompile(`^(?:[Ww]hat\b|(?:(?:Package|Command) )?[\w.*]+(?:(?:,| and|, and| or) [\w.*]+)* ` +
	`[a-z]+ what\b)`)

// comment is the text of a comment in one line, and its position.
type comment struct {
	file string
	line int
	text string
}

// findHeadless returns the headless comments of files, by their folders.
func findHeadless(files []string) (map[string][]comment, error) {
	found := map[string][]comment{}
	for _, file := range files {
		read := goComments
		if !strings.HasSuffix(file, ".go") {
			read = cComments
		}
		comments, err := read(file)
		if err != nil {
			return nil, err
		}
		folder := path.Dir(filepath.ToSlash(file))
		for _, c := range comments {
			if headless.MatchString(c.text) {
				found[folder] = append(found[folder], c)
			}
		}
	}
	return found, nil
}

// goComments returns the comments of a Go file that document it, its declarations and the fields of its types; none of
// a generated file.
func goComments(file string) (all []comment, err error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil || ast.IsGenerated(tree) {
		return nil, err
	}
	add := func(groups ...*ast.CommentGroup) {
		for _, g := range groups {
			if g != nil {
				all = append(all, comment{file, set.Position(g.Pos()).Line, inOneLine(g.Text())})
			}
		}
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.File:
			add(n.Doc)
		case *ast.FuncDecl:
			add(n.Doc)
		case *ast.GenDecl:
			add(n.Doc)
		case *ast.TypeSpec:
			add(n.Doc, n.Comment)
		case *ast.ValueSpec:
			add(n.Doc, n.Comment)
		case *ast.Field:
			add(n.Doc, n.Comment)
		}
		return true
	})
	return all, nil
}

var (
	cComment     = regexp.MustCompile(`(?s)/\*.*?\*/`)
	cContinued   = regexp.MustCompile(`\n\s*\* ?`)
	cDeclaration = regexp.MustCompile(`(?m)^(?:struct|enum|union)\b[^;{]*\{`)
)

// cComments returns the block comments of a C file that begin a line at its margin, or stand in a struct, enum or
// union.
func cComments(file string) (all []comment, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	text := string(data)
	// Where declarations begin and end: their closing braces stand at the margin.
	var bodies [][2]int
	for _, at := range cDeclaration.FindAllStringIndex(text, -1) {
		if length := strings.Index(text[at[0]:], "\n}"); length >= 0 {
			bodies = append(bodies, [2]int{at[0], at[0] + length})
		}
	}
	for _, at := range cComment.FindAllStringIndex(text, -1) {
		documents := at[0] == 0 || text[at[0]-1] == '\n' || slices.ContainsFunc(bodies, func(body [2]int) bool {
			return body[0] < at[0] && at[0] < body[1]
		})
		if documents {
			inner := cContinued.ReplaceAllString(text[at[0]+2:at[1]-2], "\n")
			all = append(all, comment{file, 1 + strings.Count(text[:at[0]], "\n"), inOneLine(inner)})
		}
	}
	return all, nil
}

// inOneLine returns a text with one space for each run of blanks.
func inOneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// checkHeadless compares the number of headless comments of each folder with the number that a file allows for it. More
// are too many; if there are fewer, the number must be lowered, so that it cannot rise again.
func checkHeadless(limits string, files []string) (problems []string, err error) {
	allowed, err := readCounts(limits)
	if err != nil {
		return nil, err
	}
	found, err := findHeadless(files)
	if err != nil {
		return nil, err
	}
	for folder, comments := range found {
		if len(comments) <= allowed[folder] {
			continue
		}
		for _, c := range comments {
			problems = append(problems, fmt.Sprintf("%s (one of %d, of %d that %s allows): put a noun of the field for “what”",
				c, len(comments), allowed[folder], limits))
		}
	}
	for folder, count := range allowed {
		if now := len(found[folder]); now < count {
			problems = append(problems, fmt.Sprintf("%s: %s has %d of %d headless comments: lower the number", limits,
				folder, now, count))
		}
	}
	slices.Sort(problems)
	return problems, nil
}

// String returns a comment's position and its first words.
func (c comment) String() string {
	const most = 90
	text := []rune(c.text)
	if len(text) > most {
		text = append(text[:most], '…')
	}
	return fmt.Sprintf("%s:%d: %s", c.file, c.line, string(text))
}

// readCounts reads lines of a folder and a number; # begins a comment.
func readCounts(file string) (map[string]int, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	counts := map[string]int{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 2 {
			return nil, fmt.Errorf("%s: %q is not a folder and a number", file, lines.Text())
		}
		count, err := strconv.Atoi(fields[1])
		if err != nil || count < 1 {
			return nil, fmt.Errorf("%s: %q is not a number above 0", file, fields[1])
		}
		counts[fields[0]] = count
	}
	return counts, lines.Err()
}

// formatCounts returns the file that readCounts reads, for the comments that were found.
func formatCounts(found map[string][]comment) string {
	text := "# How many comments of a folder are headless: see “Words in names” in CONTRIBUTING.md.\n" +
		"# No number rises, and no line is added; `lexicon -count` writes this file.\n"
	for _, folder := range slices.Sorted(maps.Keys(found)) {
		text += fmt.Sprintf("%s %d\n", folder, len(found[folder]))
	}
	return text
}

// printHeadless prints the headless comments of files, or their number by folder.
func printHeadless(count bool, files []string) error {
	found, err := findHeadless(files)
	if err != nil {
		return err
	}
	if count {
		fmt.Print(formatCounts(found))
		return nil
	}
	for _, folder := range slices.Sorted(maps.Keys(found)) {
		for _, c := range found[folder] {
			fmt.Println(c)
		}
	}
	return nil
}
