// SPDX-License-Identifier: Apache-2.0

// Command lexicon rejects words in the names that Go code declares and that C code has, where the field has another
// word for the thing, and comments with “what” in the place of a noun. CONTRIBUTING.md has the list and the rule. Two
// files, which may only shrink, name the packages that still use a word, or have such comments.
package main

import (
	"bufio"
	"flag"
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
	"strings"
)

func main() {
	count := flag.Bool("count", false, "print the number of headless comments of each folder: the file HEADLESS")
	list := flag.Bool("list", false, "print the headless comments")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: lexicon CONTRIBUTING.md ALLOWED HEADLESS FILE...\n       lexicon -count|-list FILE...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *count || *list {
		exitOn(printHeadless(*count, flag.Args()))
		return
	}
	if flag.NArg() < 4 {
		flag.Usage()
		os.Exit(2)
	}
	files := flag.Args()[3:]
	problems, err := check(flag.Arg(0), flag.Arg(1), files)
	exitOn(err)
	more, err := checkHeadless(flag.Arg(2), files)
	exitOn(err)
	for _, problem := range append(problems, more...) {
		fmt.Fprintln(os.Stderr, problem)
	}
	if len(problems)+len(more) > 0 {
		os.Exit(1)
	}
}

// exitOn ends the program if something could not be read.
func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "lexicon:", err)
		os.Exit(2)
	}
}

// use is a word in a folder.
type use struct{ word, folder string }

// name is a name in a file, and its position.
type name struct{ text, at string }

// check returns the refused words in the names that Go files declare and C files have, and the exceptions that nothing
// needs.
func check(contributing, allowed string, files []string) (problems []string, err error) {
	words, err := readWords(contributing)
	if err != nil {
		return nil, err
	}
	excused, err := readAllowed(allowed)
	if err != nil {
		return nil, err
	}
	needed := map[use]bool{}
	for _, file := range files {
		read, better := goNames, words.everywhere
		if !strings.HasSuffix(file, ".go") {
			read, better = cNames, words.inC
		}
		names, err := read(file)
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			for word, instead := range better {
				if !has(n.text, word) {
					continue
				}
				if at := covering(excused, use{word, path.Dir(filepath.ToSlash(file))}); at != (use{}) {
					needed[at] = true
					continue
				}
				problems = append(problems, fmt.Sprintf("%s: %s: the field says %s (CONTRIBUTING.md, words in names)",
					n.at, n.text, instead))
			}
		}
	}
	for _, u := range excused {
		if !needed[u] {
			problems = append(problems, fmt.Sprintf("%s: %s uses %q no more: remove the line", allowed,
				u.folder, u.word))
		}
	}
	slices.Sort(problems)
	return problems, nil
}

// covering returns the exception for a word in a folder or in one above it; zero if there is none.
func covering(excused []use, u use) use {
	for _, e := range excused {
		if e.word == u.word && (u.folder == e.folder || strings.HasPrefix(u.folder, e.folder+"/")) {
			return e
		}
	}
	return use{}
}

// row matches a line of the table of words: | `refused`, `refused` | what the field says |
var row = regexp.MustCompile("^\\| ((?:`[A-Za-z]+`(?:, )?)+) \\| (.+) \\|$")

// words are the refused words, with the field's word for each: those refused everywhere, and those refused in C, which
// include the former.
type words struct{ everywhere, inC map[string]string }

// readWords reads the tables below the headings “Words in names” and “Words in names of C”.
func readWords(file string) (*words, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all := &words{}
	if all.everywhere = readTable(string(data), "\n### Words in names\n"); len(all.everywhere) == 0 {
		return nil, fmt.Errorf("%s has no table of words in names", file)
	}
	if all.inC = readTable(string(data), "\n#### Words in names of C\n"); len(all.inC) == 0 {
		return nil, fmt.Errorf("%s has no table of words in names of C", file)
	}
	maps.Copy(all.inC, all.everywhere)
	return all, nil
}

// readTable reads the rows below a heading, up to the next heading.
func readTable(page, heading string) map[string]string {
	_, table, _ := strings.Cut(page, heading)
	table, _, _ = strings.Cut(table, "\n#")
	better := map[string]string{}
	for line := range strings.Lines(table) {
		if m := row.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			for word := range strings.SplitSeq(m[1], ", ") {
				better[strings.Trim(word, "`")] = strings.ReplaceAll(m[2], "`", "")
			}
		}
	}
	return better
}

// readAllowed reads lines of a word and a folder; # begins a comment.
func readAllowed(file string) (all []use, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 2 {
			return nil, fmt.Errorf("%s: %q is not a word and a folder", file, lines.Text())
		}
		all = append(all, use{fields[0], fields[1]})
	}
	return all, lines.Err()
}

// goNames returns the names that a Go file declares.
func goNames(file string) (all []name, err error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, id := range declared(tree) {
		all = append(all, name{id.Name, set.Position(id.Pos()).String()})
	}
	return all, nil
}

// cSkipped matches the parts of a C file that contain no names of this project: comments, strings, characters and
// includes.
var cSkipped = regexp.MustCompile(`(?ms)/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|^#include[^\n]*`)

var cName = regexp.MustCompile(`\b[A-Za-z_][A-Za-z0-9_]*\b`)

// cNames returns the names in a C file, each once, at its first position. They include the kernel's names, none of
// which is refused.
func cNames(file string) (all []name, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	// Keep the numbers of lines.
	text := cSkipped.ReplaceAllStringFunc(string(data), func(part string) string {
		return " " + strings.Repeat("\n", strings.Count(part, "\n"))
	})
	seen := map[string]bool{}
	for _, at := range cName.FindAllStringIndex(text, -1) {
		if id := text[at[0]:at[1]]; !seen[id] {
			seen[id] = true
			all = append(all, name{id, fmt.Sprintf("%s:%d", file, 1+strings.Count(text[:at[0]], "\n"))})
		}
	}
	return all, nil
}

// declared returns the names that a file declares.
func declared(tree *ast.File) (all []*ast.Ident) {
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			all = append(all, n.Name)
		case *ast.TypeSpec:
			all = append(all, n.Name)
		case *ast.ValueSpec:
			all = append(all, n.Names...)
		case *ast.Field:
			all = append(all, n.Names...)
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				break
			}
			for _, left := range n.Lhs {
				if id, is := left.(*ast.Ident); is {
					all = append(all, id)
				}
			}
		}
		return true
	})
	return all
}

// part is a word of a name in camel case.
var part = regexp.MustCompile(`[A-Z]+(?:[a-z]+|\b|[0-9_])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+`)

// has reports whether a name, in camel case or with underscores, contains a word, which may have several parts
// (keepHouse).
func has(name, word string) bool {
	split := func(text string) string {
		text = strings.ReplaceAll(text, "_", " ")
		return " " + strings.ToLower(strings.Join(part.FindAllString(text, -1), " ")) + " "
	}
	return strings.Contains(split(name), split(word))
}
