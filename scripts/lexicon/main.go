// SPDX-License-Identifier: Apache-2.0

// Command lexicon refuses words in the names that Go code declares, where the field has another word for the thing, and
// comments that say “what” where a noun belongs. CONTRIBUTING.md has the list and the rule. Packages that still use a
// word, or have such comments, are in two files, which may only shrink.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
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

// exitOn ends the program where something could not be read.
func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "lexicon:", err)
		os.Exit(2)
	}
}

// use is a word in a folder.
type use struct{ word, folder string }

// check returns the refused words in the names that Go files declare, and the excuses that nothing needs.
func check(contributing, allowed string, files []string) (problems []string, err error) {
	better, err := readWords(contributing)
	if err != nil {
		return nil, err
	}
	excused, err := readAllowed(allowed)
	if err != nil {
		return nil, err
	}
	needed := map[use]bool{}
	for _, file := range files {
		if !strings.HasSuffix(file, ".go") {
			continue
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, id := range declared(tree) {
			for word, instead := range better {
				if !has(id.Name, word) {
					continue
				}
				if at := covering(excused, use{word, path.Dir(filepath.ToSlash(file))}); at != (use{}) {
					needed[at] = true
					continue
				}
				problems = append(problems, fmt.Sprintf("%s: %s: the field says %s (CONTRIBUTING.md, words in names)",
					set.Position(id.Pos()), id.Name, instead))
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

// covering returns the excuse for a word in a folder or in one above it; zero if there is none.
func covering(excused []use, u use) use {
	for _, e := range excused {
		if e.word == u.word && (u.folder == e.folder || strings.HasPrefix(u.folder, e.folder+"/")) {
			return e
		}
	}
	return use{}
}

// row is a line of the table of words: | `refused`, `refused` | what the field says |
var row = regexp.MustCompile("^\\| ((?:`[A-Za-z]+`(?:, )?)+) \\| (.+) \\|$")

// readWords reads the table below the heading “Words in names”: what to say instead of each word.
func readWords(file string) (map[string]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	_, table, found := strings.Cut(string(data), "\n### Words in names\n")
	table, _, _ = strings.Cut(table, "\n#")
	better := map[string]string{}
	for line := range strings.Lines(table) {
		if m := row.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			for word := range strings.SplitSeq(m[1], ", ") {
				better[strings.Trim(word, "`")] = strings.ReplaceAll(m[2], "`", "")
			}
		}
	}
	if !found || len(better) == 0 {
		return nil, fmt.Errorf("%s has no table of words in names", file)
	}
	return better, nil
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

// has says whether a name has a word, which may be of several parts, as in keepHouse.
func has(name, word string) bool {
	split := func(text string) string {
		return " " + strings.ToLower(strings.Join(part.FindAllString(text, -1), " ")) + " "
	}
	return strings.Contains(split(name), split(word))
}
