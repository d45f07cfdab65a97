// SPDX-License-Identifier: Apache-2.0

// Command functions names the functions of Go files that have more than 60 lines, from the line of "func" to that of
// the last brace. It leaves out tests, whose tables of cases are lines without being code, and generated files.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
)

const mostLines = 60

func main() {
	long := false
	for _, file := range os.Args[1:] {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err == nil {
			var found []longFunction
			if found, err = longFunctions(file, source); len(found) > 0 {
				long = true
			}
			for _, f := range found {
				fmt.Fprintf(os.Stderr, "%s:%d: %s has %d lines, of at most %d\n", file, f.line, f.name, f.lines, mostLines)
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "functions:", err)
			os.Exit(2)
		}
	}
	if long {
		os.Exit(1)
	}
}

// longFunction is a function that has too many lines, and the line that it begins on.
type longFunction struct {
	name        string
	line, lines int
}

// longFunctions returns the functions of a file that are too long. A function literal counts as a part of the function
// or variable that it is written in; of a variable, it goes by the variable's name.
func longFunctions(file string, source []byte) ([]longFunction, error) {
	set := token.NewFileSet()
	syntax, err := parser.ParseFile(set, file, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(syntax) {
		return nil, nil
	}
	var long []longFunction
	check := func(name string, node ast.Node) {
		first, last := set.PositionFor(node.Pos(), false).Line, set.PositionFor(node.End(), false).Line
		if lines := last - first + 1; lines > mostLines {
			long = append(long, longFunction{name, first, lines})
		}
	}
	for _, declaration := range syntax.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			check(d.Name.Name, d) // Pos is that of "func": the comment before it does not count.
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if values, ok := spec.(*ast.ValueSpec); ok {
					checkLiterals(values, check)
				}
			}
		}
	}
	return long, nil
}

// checkLiterals checks the outermost function literals among the values of a variable.
func checkLiterals(values *ast.ValueSpec, check func(name string, node ast.Node)) {
	for _, value := range values.Values {
		ast.Inspect(value, func(node ast.Node) bool {
			literal, ok := node.(*ast.FuncLit)
			if ok {
				check(values.Names[0].Name, literal)
			}
			return !ok
		})
	}
}
