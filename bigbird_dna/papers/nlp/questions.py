"""Question answering in long documents: network, windows of records, training and prediction (App. E.2).

A record is tokenized with character offsets and divided into windows, which the network scores. The scores of
all windows are combined to a prediction. Axes: n tokens of a window's context; in batches, B rows, L tokens,
G extra globals, D hidden width, S spans, A anchors (sentences or candidates that are scored).
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.errors import DataError, ModelError
from bigbird_dna.model.directory import load
from bigbird_dna.model.heads import QuestionAnswerer
from bigbird_dna.model.input_embeddings import Globals, initialize
from bigbird_dna.model.settings import OtherSettings, Task, register_settings
from bigbird_dna.papers.nlp.config import (
    AnswerForm,
    AnswersTaskConfig,
    TextPaths,
)
from bigbird_dna.papers.nlp.data import generate_questions, write_splits
from bigbird_dna.papers.nlp.public import public_record, read_public
from bigbird_dna.papers.nlp.question_metrics import normalize_answer, official_metrics
from bigbird_dna.papers.nlp.records import (
    QuestionRecord,
    read_labeled,
    read_predictions,
    read_records,
)
from bigbird_dna.papers.nlp.start import check_positions, fast_tokenizer, make_start
from bigbird_dna.papers.nlp.trainer import Seeded, fit

TYPES: dict[str, tuple[str, ...]] = {
    "hotpotqa": ("span", "yes", "no"),
    "natural_questions": ("null", "yes", "no", "short", "long"),
}
"""Answer types predicted by a head on [CLS]."""

UNUSED, CLS, QUESTION, PARAGRAPH, SENTENCE, CANDIDATE = range(6)
"""Kinds of extra globals; those of question tokens and [CLS] also have a token embedding."""

CANDIDATE_TOKENS = 16
LEAST_CONTEXT = 13
"""Least tokens of a window that a question and its candidates must leave for paragraphs."""
TITLE = -1
"""Sentence number of a title's tokens, which contain no answer."""
BEGINNINGS = 20
"""Number of best-scoring tokens of a window that are tried as the beginning of an answer."""
NONE = -1
"""Label or position that does not exist: a further span, an unknown type, an anchor beyond the last one."""

Span = tuple[int, int]
"""First and last token of a window's input."""


class LongAnswersSettings(OtherSettings):
    """Settings of a model that answers questions in long documents."""

    task: ClassVar[Task] = "long-answers"
    form: AnswerForm

    def build(self, config: EncoderConfig) -> Any:
        return AnswerNetwork(config, self.form)


register_settings(LongAnswersSettings)


def span_loss(start: Tensor, end: Tensor, spans: Tensor) -> Tensor:
    """Return -ln Σ P(start) P(end) over the spans of each row (B, S, 2; -1: none), as a mean over rows.

    With one span per row, this is the cross-entropy of its start and of its end. With several, any of them
    may be the correct one (noisy span loss of TriviaQA).
    """
    first, last = spans.clamp(min=0).unbind(-1)
    each = start.log_softmax(-1).gather(1, first) + end.log_softmax(-1).gather(1, last)
    return -each.masked_fill(spans[..., 0] < 0, -torch.inf).logsumexp(1).mean()


class AnswerNetwork(QuestionAnswerer):
    """`QuestionAnswerer` with additional heads, and extra globals that represent parts of the input.

    Natural Questions have two more scores per token for long answers. The type is predicted from [CLS]. With
    extra globals, [CLS] and the anchors (HotpotQA: sentences, WikiHop: candidates) are among them; without,
    an anchor is the first token of its sentence or candidate.
    """

    def __init__(self, config: EncoderConfig, form: AnswerForm) -> None:
        super().__init__(config)
        hidden, types = config.hidden, len(TYPES.get(form, ()))
        self.form = form
        is_natural = form == "natural_questions"
        has_anchors = form in ("hotpotqa", "wikihop")
        self.long_spans = nn.Linear(hidden, 2) if is_natural else None
        self.types = nn.Linear(hidden, types) if types else None
        self.anchors = nn.Linear(hidden, 1) if has_anchors else None
        self.kinds = None
        if config.num_global_tokens:
            self.kinds = nn.Embedding(CANDIDATE + 1, hidden)
        for head in (self.long_spans, self.types, self.anchors, self.kinds):
            if head is not None:
                initialize(head, hidden)

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        header: Tensor,
        anchors: Tensor,
        global_ids: Tensor,
        global_kinds: Tensor,
        owners: Tensor,
        labels: dict[str, Tensor] | None = None,
    ) -> dict[str, Any]:
        """Return the scores of tokens (B, L, 2 or 4), types (B, T) and anchors (B, A), and the loss.

        `header` (B,) are the tokens of [CLS], question, [SEP] and candidates, which contain no answer.
        `anchors` (B, A) are positions among extra globals and tokens. `global_ids` (B, G) are tokens of [CLS]
        and question, `global_kinds` (B, G) their kinds, and `owners` (B, L) as in `Globals.owners`. `labels`
        are those of `collate`.
        """
        lengths = attention_mask.sum(1, keepdim=True)
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        in_header = positions < header[:, None]
        extra = None
        if self.kinds is not None:
            content = self.encoder.embeddings.token(global_ids.clamp(min=0))
            content = content * (global_ids >= 0)[..., None]
            extra = Globals(content + self.kinds(global_kinds), owners)
        encoded = self.encoder.encode(
            input_ids, lengths[:, 0], (~in_header).long(), extra
        )
        hidden = torch.cat(encoded, dim=1)  # (B, G + L, D)
        spans = self.scores(encoded.tokens, in_header)
        if self.long_spans is not None:
            long = self.long_spans(self.dropout(encoded.tokens))
            spans = torch.cat([spans, long], dim=-1)
        # An answer is in the context, or [CLS], which means no answer; the last token is [SEP].
        allowed = (~in_header & (positions < lengths - 1)) | (positions == 0)
        spans = spans.float().masked_fill(~allowed[..., None], -torch.inf)
        output: dict[str, Any] = {"spans": spans}
        if self.types is not None:
            output["types"] = self.types(self.dropout(hidden[:, 0])).float()
        if self.anchors is not None:
            index = anchors.clamp(min=0)[..., None].expand(-1, -1, hidden.shape[2])
            scores = self.anchors(self.dropout(hidden.gather(1, index)))[..., 0]
            output["anchors"] = scores.float().masked_fill(anchors < 0, -torch.inf)
        if labels is not None:
            output["loss"] = self.loss(output, labels)
        return output

    def loss(self, output: dict[str, Tensor], labels: dict[str, Tensor]) -> Tensor:
        """Return the sum of the heads' losses in nats per window."""
        spans = output["spans"]
        if self.form == "wikihop":
            if not (labels["candidates"] >= 0).any():
                return output["anchors"].nan_to_num(neginf=0).sum() * 0
            return F.cross_entropy(
                output["anchors"], labels["candidates"], ignore_index=NONE
            )
        total = span_loss(spans[..., 0], spans[..., 1], labels["spans"])
        if self.long_spans is not None:
            total += span_loss(spans[..., 2], spans[..., 3], labels["long_spans"])
        if self.types is not None:
            types = F.cross_entropy(
                output["types"], labels["types"], ignore_index=NONE, reduction="sum"
            )
            total += types / len(spans)
        if self.anchors is not None:
            facts = labels["facts"]
            known = facts >= 0
            each = F.binary_cross_entropy_with_logits(
                output["anchors"][known], facts[known].float(), reduction="sum"
            )
            total += each / len(spans)
        return total


class Window(NamedTuple):
    """Input of the network: a header, n tokens of the context, and [SEP]."""

    ids: list[int]
    header: int  # tokens of [CLS], the question, the candidates, and a [SEP] after each
    paragraph: NDArray[np.int64]  # (n,)
    sentence: NDArray[np.int64]  # (n,) number within the paragraph, or `TITLE`
    start: NDArray[np.int64]  # (n,) characters in the paragraph, without space before
    end: NDArray[np.int64]  # (n,)
    word: NDArray[np.int64]  # (n,) number of its word in the context
    anchors: list[int]  # among extra globals and tokens
    names: list[Span]  # of the anchors: paragraph, sentence; candidate, 0
    global_ids: list[int]
    global_kinds: list[int]
    owners: list[int]

    def span(self, paragraph: int, start: int, end: int) -> Span | None:
        """Return the tokens of characters of a paragraph, if all of them are in the window."""
        inside = (self.paragraph == paragraph) & (self.sentence != TITLE)
        tokens = np.flatnonzero(inside & (self.start < end) & (self.end > start))
        if not len(tokens):
            return None
        first, last = int(tokens[0]), int(tokens[-1])
        if self.start[first] > start or self.end[last] < end:
            return None
        return first + self.header, last + self.header

    def whole(self, record: QuestionRecord, paragraph: int) -> Span | None:
        """Return the tokens of a paragraph, if all of them are in the window."""
        text = record.paragraphs[paragraph].text
        return self.span(paragraph, len(text) - len(text.lstrip()), len(text.rstrip()))


def make_windows(
    record: QuestionRecord, tokenizer: Any, section: AnswersTaskConfig, extra: int
) -> list[Window]:
    """Divide a record into inputs of at most `section.length` tokens; at least one.

    The inputs' contexts begin every `section.stride` tokens. With `extra` globals, these represent, in order,
    [CLS], the question's tokens, the candidates, and each paragraph of the window with, if supporting facts
    are predicted, each of its sentences; parts beyond the number `extra` have none. `DataError` if question
    and candidates leave too few tokens.
    """

    def encode(text: str) -> list[int]:
        # A text begins with a word: tokenizers that depend on the space before it get one.
        ids: list[int] = tokenizer(f" {text}", add_special_tokens=False)["input_ids"]
        return ids

    sep = tokenizer.sep_token_id
    asked = encode(record.question)[: section.question_tokens]
    global_ids = [tokenizer.cls_token_id, *asked]
    ids = [*global_ids, sep]
    kinds = [CLS] + [QUESTION] * len(asked)
    owners = [*range(len(kinds)), NONE]
    firsts, names = [], []
    candidates = record.candidates if section.form == "wikihop" else ()
    for number, candidate in enumerate(candidates):
        firsts.append(len(kinds) if extra else len(ids))
        names.append((number, 0))
        tokens = [*encode(candidate)[:CANDIDATE_TOKENS], sep]
        ids += tokens
        owners += [len(kinds)] * len(tokens)
        kinds.append(CANDIDATE)
        global_ids.append(NONE)
    header = len(ids)
    room = section.length - header - 1
    if room < LEAST_CONTEXT:
        raise DataError(
            f"record {record.id!r}: question and {len(candidates)} candidates have {header} tokens; length "
            f"{section.length} leaves too few tokens for the paragraphs"
        )

    # The context as one text, and of each character its paragraph, sentence and position in the paragraph.
    texts, parts, positions = [], [], []
    for number, paragraph in enumerate(record.paragraphs):
        title = f" {paragraph.title} "
        before = -len(title)
        for index, text in [(TITLE, title), *enumerate(paragraph.sentences)]:
            texts.append(text)
            parts.append((number, index))
            positions.append(np.arange(before, before + len(text)))
            before += len(text)
    part_of = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    paragraph_of, sentence_of = np.array(parts)[part_of].T
    position_of = np.concatenate(positions)
    context = "".join(texts)
    visible = np.array([not letter.isspace() for letter in context])
    word_of = (visible & ~np.roll(visible, 1)).cumsum()
    encoded = tokenizer(
        context,
        add_special_tokens=False,
        truncation=True,
        max_length=room,
        stride=max(room - section.stride, 0),
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )

    windows = []
    for tokens, offsets in zip(
        encoded["input_ids"], encoded["offset_mapping"], strict=True
    ):
        rows = []
        for token, (start, end) in zip(tokens, offsets, strict=True):
            start = end - len(context[start:end].lstrip())
            if start < end:
                rows.append((token, start, end))
        used, start, end = np.array(rows, np.int64).reshape(-1, 3).T
        paragraph, sentence = paragraph_of[start], sentence_of[start]
        # Units that have a global: each paragraph, with its title, and each sentence.
        titles = np.full_like(sentence, TITLE)
        keys = [paragraph, sentence if section.form == "hotpotqa" else titles]
        both = np.concatenate([np.stack(keys, 1), np.stack([paragraph, titles], 1)])
        units, unit_of = np.unique(both, axis=0, return_inverse=True)
        unit_of = unit_of.ravel()[: len(used)]
        slots, places, anchors = [*kinds], [*firsts], [*names]
        for number, (of_paragraph, of_sentence) in enumerate(units.tolist()):
            if of_sentence != TITLE:
                first = header + int(np.argmax(unit_of == number))
                places.append(len(slots) if extra else first)
                anchors.append((of_paragraph, of_sentence))
            slots.append(PARAGRAPH if of_sentence == TITLE else SENTENCE)
        if extra:
            places = [place for place in places if place < extra]
        owned = [*owners, *(unit_of + len(kinds)).tolist(), NONE]
        window = Window(
            [*ids, *used.tolist(), sep],
            header,
            paragraph,
            sentence,
            position_of[start],
            position_of[end - 1] + 1,
            word_of[start],
            places,
            anchors[: len(places)],
            (global_ids + [NONE] * extra)[:extra],
            (slots + [UNUSED] * extra)[:extra],
            [slot if slot < extra else NONE for slot in owned],
        )
        windows.append(window)
    return windows


def collate(
    windows: Sequence[Window],
    pad_id: int,
    labels: Sequence[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return windows, and their labels if any, as padded tensors."""

    def pad(rows: Sequence[Any], value: int = NONE) -> Tensor:
        tensors = [torch.tensor([*row] or [NONE], dtype=torch.long) for row in rows]
        return pad_sequence(tensors, batch_first=True, padding_value=value)

    lengths = torch.tensor([len(window.ids) for window in windows])
    batch: dict[str, Any] = {
        "input_ids": pad([window.ids for window in windows], pad_id),
        "attention_mask": (torch.arange(int(lengths.max())) < lengths[:, None]).long(),
        "header": torch.tensor([window.header for window in windows]),
        "anchors": pad([window.anchors for window in windows]),
        "global_ids": pad([window.global_ids for window in windows]),
        "global_kinds": pad([window.global_kinds for window in windows], UNUSED),
        "owners": pad([window.owners for window in windows]),
    }
    if labels is not None:
        count = len(labels)
        batch["labels"] = {
            "spans": pad([row["spans"] for row in labels]).view(count, -1, 2),
            "long_spans": pad([row["long"] for row in labels]).view(count, -1, 2),
            "types": torch.tensor([row["type"] for row in labels]),
            "candidates": torch.tensor([row["candidate"] for row in labels]),
            "facts": pad([row["facts"] for row in labels]),
        }
    return batch


def window_labels(
    window: Window, record: QuestionRecord, section: AnswersTaskConfig
) -> dict[str, Any]:
    """Return the true answer of a window, without one the span of [CLS], and whether there `is_answer`.

    Answers without a position match all occurrences (TriviaQA): words are compared in lower case, by letters
    and digits only, without articles at the beginning.
    """
    characters: set[tuple[int, int, int]] = set()
    candidate = NONE
    if section.form == "wikihop":
        answers = {normalize_answer(answer.text) for answer in record.answers}
        for number, text in reversed([*enumerate(record.candidates)]):
            if normalize_answer(text) in answers and (number, 0) in window.names:
                candidate = window.names.index((number, 0))
    elif record.type not in ("yes", "no"):
        for answer in record.answers:
            if answer.paragraph is not None and answer.start is not None:
                end = answer.start + len(answer.text)
                characters.add((answer.paragraph, answer.start, end))
        for text in () if characters else {answer.text for answer in record.answers}:
            words = re.findall(r"\w+", text.lower())
            while words and words[0] in ("a", "an", "the"):
                words = words[1:]
            if 0 < len(words) <= section.answer_words:
                pattern = r"\b" + r"\W+".join(words) + r"\b"
                for number, paragraph in enumerate(record.paragraphs):
                    for match in re.finditer(pattern, paragraph.text.lower()):
                        characters.add((number, *match.span()))
    found = {window.span(*position) for position in characters}
    spans = sorted(span for span in found if span is not None)
    kind, long = record.type, None
    if record.long_answer is not None:
        long = window.whole(record, record.long_answer)
        if long is None:
            kind = "null"
    types = TYPES.get(section.form, ())
    facts = {(fact.paragraph, fact.sentence) for fact in record.facts}
    known = [int(name in facts) for name in window.names]
    return {
        "spans": [token for span in spans for token in span] or [0, 0],
        "long": long or (0, 0),
        "type": types.index(kind) if kind in types else NONE,
        "candidate": candidate,
        "facts": known,
        "is_answer": bool(spans or long or (not characters and any(known))),
    }


def prepare(section: AnswersTaskConfig, directory: Path) -> None:
    """Write the records of the three splits."""

    write_splits(
        section.data,
        directory,
        QuestionRecord,
        lambda row: public_record(section.form, row),
        generate_questions,
        (lambda path: read_public(section.form, path)) if section.public else None,
    )


def read_complete(section: AnswersTaskConfig, path: Path) -> list[QuestionRecord]:
    """Return the records of a file; `DataError` if one has no answer."""

    def missing(record: QuestionRecord) -> str | None:
        if not (
            record.answers
            or section.form == "natural_questions"
            or record.type in ("yes", "no")
        ):
            return "answer"
        if section.form == "wikihop" and len(record.candidates) < 2:
            return "two candidates to choose from"
        return None

    return read_labeled(path, QuestionRecord, missing)


def train(
    section: AnswersTaskConfig, paths: TextPaths, output: Path, **options: Any
) -> None:
    """Train on a window of each record per epoch and write a model directory; `options` are those of `fit`.

    With probability 0.5, the window is one with part of the answer, if there is any.
    """
    files = [paths.split("train"), paths.split("valid")]
    train, valid = (read_complete(section, path) for path in files)
    texts = (
        text
        for record in train
        for text in (record.question, *(p.text for p in record.paragraphs))
    )
    start = make_start(section, texts)
    check_positions({"length": section.length}, start.config.max_length)
    tokenizer = fast_tokenizer(start.tokenizer)
    extra = start.config.num_global_tokens

    def choose(examples: Sequence[Any]) -> dict[str, Any]:
        chosen, labels = [], []
        for record, seed in examples:
            rng = np.random.default_rng(seed)
            windows = make_windows(record, tokenizer, section, extra)
            pairs = [(w, window_labels(w, record, section)) for w in windows]
            answered = [pair for pair in pairs if pair[1]["is_answer"]]
            if answered and rng.random() < 0.5:
                pairs = answered
            window, label = pairs[int(rng.integers(len(pairs)))]
            chosen.append(window)
            labels.append(label)
        return collate(chosen, tokenizer.pad_token_id, labels)

    network = AnswerNetwork(start.config, section.form)
    start.initialize(network)
    fit(
        network,
        section,
        start,
        LongAnswersSettings(form=section.form),
        files,
        Seeded(train, section.seed),
        Seeded(valid, section.seed),
        choose,
        output,
        **options,
    )


def predict(
    section: AnswersTaskConfig,
    directory: Path,
    path: Path,
    device: torch.device,
    batch_size: int,
) -> Iterator[dict[str, Any]]:
    """Yield each record's answer, its position in the source, and other outputs of the form."""
    model = load(directory)
    if not isinstance(model.settings, LongAnswersSettings):
        raise ModelError(f"{directory}: needs a model that answers questions")
    tokenizer = fast_tokenizer(model.tokenizer)
    network: Any = model.network.to(device)
    for record in read_records(path, QuestionRecord):
        extra = model.config.num_global_tokens
        windows = make_windows(record, tokenizer, section, extra)
        scores = []
        for first in range(0, len(windows), batch_size):
            batch = collate(windows[first : first + batch_size], tokenizer.pad_token_id)
            with torch.inference_mode():
                output = network(**{key: x.to(device) for key, x in batch.items()})
            arrays = {key: x.double().cpu().numpy() for key, x in output.items()}
            for row in range(len(batch["input_ids"])):
                scores.append({key: x[row] for key, x in arrays.items()})
        yield decode(record, windows, scores, section)


def decode(
    record: QuestionRecord,
    windows: Sequence[Window],
    scores: Sequence[Mapping[str, Any]],
    section: AnswersTaskConfig,
) -> dict[str, Any]:
    """Combine the scores of a record's windows to its prediction.

    Scores of answers are sums of logits minus those of [CLS], which means no answer. Of Natural Questions,
    the paragraph with the best long answer is predicted, with the type of its window, and, as in the data
    set, the best short answer in it.
    """
    prediction: dict[str, Any] = {"id": record.id, "answer": ""}
    best = -np.inf
    if section.form == "natural_questions":
        prediction |= {"type": "null", "long_answer": None, "long_score": None}
        values: dict[str, Any] = {}
        for window, output in zip(windows, scores, strict=True):
            spans = output["spans"]
            for number in np.unique(window.paragraph).tolist():
                long = window.whole(record, number)
                if long is None:
                    continue
                score = spans[long[0], 2] + spans[long[1], 3] - spans[0, 2:].sum()
                if score > best:
                    best = score
                    values = best_answer(record, window, spans, long, section)
                    kind = TYPES[section.form][int(output["types"].argmax())]
                    values |= {
                        "type": kind,
                        "long_answer": number,
                        "long_score": float(score),
                    }
        return prediction | values
    anchors: dict[Span, list[float]] = defaultdict(list)
    for window, output in zip(windows, scores, strict=True):
        for number, name in enumerate(window.names):
            anchors[name].append(float(output["anchors"][number]))
    if section.form == "wikihop":
        if anchors:
            candidate, _ = max(anchors, key=lambda name: sum(anchors[name]))
            prediction["answer"] = record.candidates[candidate]
        return prediction
    for window, output in zip(windows, scores, strict=True):
        context = window.header, len(window.ids) - 2
        answer = best_answer(record, window, output["spans"], context, section)
        if answer and answer["score"] > best:
            best = answer["score"]
            prediction |= answer
    if section.form == "hotpotqa":
        total = np.sum([output["types"] for output in scores], axis=0)
        kind = TYPES[section.form][int(total.argmax())]
        if kind != "span":
            prediction = {"id": record.id, "answer": kind}
        prediction["type"] = kind
        facts = [list(name) for name, values in anchors.items() if max(values) > 0]
        prediction["facts"] = sorted(facts)
    return prediction


def best_answer(
    record: QuestionRecord,
    window: Window,
    spans: NDArray[np.float64],
    inside: Span,
    section: AnswersTaskConfig,
) -> dict[str, Any]:
    """Return the best answer among the tokens `inside`, with its score above that of no answer.

    An answer is within one paragraph and has at most `section.answer_words` words; of equal scores, the first
    is best. Empty: there are only titles.
    """
    tokens = np.arange(inside[0], inside[1] + 1) - window.header
    paragraph, word = window.paragraph[tokens], window.word[tokens]
    is_text = window.sentence[tokens] != TITLE
    starts = np.where(is_text, spans[tokens + window.header, 0], -np.inf)
    ends = spans[tokens + window.header, 1]
    answer: dict[str, Any] = {}
    best = -np.inf
    for first in np.argsort(-starts, kind="stable")[:BEGINNINGS].tolist():
        if not is_text[first]:
            continue
        fits = (paragraph[first:] == paragraph[first]) & (
            word[first:] - word[first] < section.answer_words
        )
        length = len(fits) if fits.all() else int(fits.argmin())
        last = first + int(ends[first : first + length].argmax())
        score = float(starts[first] + ends[last])
        if score > best:
            best = score
            number = int(paragraph[first])
            begin, end = window.start[tokens[first]], window.end[tokens[last]]
            answer = {
                "answer": record.paragraphs[number].text[begin:end],
                "paragraph": number,
                "start": int(begin),
                "score": score - float(spans[0, :2].sum()),
            }
    return answer


def evaluate(
    section: AnswersTaskConfig, paths: TextPaths, path: Path, predictions: Path
) -> dict[str, Any]:
    """Return the official metrics of the data set of the section's `form`."""
    records = read_complete(section, path)
    lines = read_predictions(predictions, "answer", records)
    return official_metrics(section.form, list(zip(records, lines, strict=True)))
