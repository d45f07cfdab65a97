// SPDX-License-Identifier: Apache-2.0

package report

//go:generate gzip -9nkf assets/texts.en.yaml assets/texts.ko.yaml
