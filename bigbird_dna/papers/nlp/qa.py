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
from bigbird_dna.errors import DataError
from bigbird_dna.model.heads import QuestionAnswerer
from bigbird_dna.model.input_embeddings import Globals, initialize
from bigbird_dna.model.settings import OtherSettings, Task, register_settings
from bigbird_dna.papers.nlp.config import (
    AnswerForm,
    AnswersTaskConfig,
)
from bigbird_dna.papers.nlp.data import generate_questions, write_splits
from bigbird_dna.papers.nlp.public import public_record
from bigbird_dna.papers.nlp.question_metrics import official_metrics
from bigbird_dna.papers.nlp.records import (
    QuestionRecord,
    read_labeled,
    read_predictions,
    read_records,
)
from bigbird_dna.papers.nlp.trainer import begin_training, fit, open_trained

TYPES = ("null", "yes", "no", "short", "long")
"""Answer types predicted by a head on [CLS]; those of HotpotQA are yes, no and short."""

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
    """Return -ln Σ P(start) P(end) over the spans of each row (B, 2 S; -1: none), as a mean over rows.

    With one span per row, this is the cross-entropy of its start and of its end. With several, any of them
    may be the correct one (noisy span loss of TriviaQA).
    """
    first, last = spans[:, ::2], spans[:, 1::2]
    start = start.log_softmax(-1).gather(1, first.clamp(min=0))
    end = end.log_softmax(-1).gather(1, last.clamp(min=0))
    return -(start + end).masked_fill(first < 0, -torch.inf).logsumexp(1).mean()


class AnswerNetwork(QuestionAnswerer):
    """`QuestionAnswerer` with additional heads, and extra globals that represent parts of the input.

    The heads are two more scores per token for long answers (Natural Questions), the answer's type, from
    [CLS], and a score of anchors (HotpotQA: sentences, WikiHop: candidates). With extra globals, [CLS] and
    the anchors are among them; without, an anchor is the first token of its sentence or candidate. Heads that
    a form doesn't need are not trained.
    """

    def __init__(self, config: EncoderConfig, form: AnswerForm) -> None:
        super().__init__(config)
        self.form = form
        self.long_spans = nn.Linear(config.hidden, 2)
        self.types = nn.Linear(config.hidden, len(TYPES))
        self.anchors = nn.Linear(config.hidden, 1)
        for head in (self.long_spans, self.types, self.anchors):
            initialize(head, config.hidden)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        anchors: Tensor,
        global_ids: Tensor,
        owners: Tensor,
        labels: dict[str, Tensor] | None = None,
    ) -> dict[str, Any]:
        """Score the windows of questions.

        Parameters
        ----------
        input_ids
            Tokens (B, L), padded on the right.
        token_type_ids
            1 for tokens of the context, (B, L); one more token follows it.
        anchors
            Positions (B, A) among extra globals and tokens; -1: none.
        global_ids
            Tokens (B, G) whose embeddings the extra globals have.
        owners
            Extra global (B, L) of each token, as in `Globals.owners`.
        labels
            Those of `window_labels`.

        Returns
        -------
        `spans` (B, L, 4), scores of the first and the last token of the answer and of the long answer,
        `types` (B, 5), `anchors` (B, A), and with labels the `loss`.
        """
        extra = None
        if global_ids.shape[1]:
            extra = Globals(self.encoder.embeddings.token(global_ids), owners)

        positions = torch.arange(1, input_ids.shape[1] + 1, device=input_ids.device)
        lengths = (token_type_ids * positions).amax(1) + 1
        encoded = self.encoder.encode(input_ids, lengths, token_type_ids, extra)
        hidden = self.dropout(torch.cat(encoded, dim=1))  # (B, G + L, D)

        # The score of [CLS] means no answer.
        allowed = token_type_ids.bool()
        allowed[:, 0] = True
        short = self.scores(encoded.tokens)
        long = self.long_spans(self.dropout(encoded.tokens))
        spans = torch.cat([short, long], dim=-1).float()

        index = anchors.clamp(min=0)[..., None].expand(-1, -1, hidden.shape[2])
        scores = self.anchors(hidden.gather(1, index))[..., 0]

        output: dict[str, Any] = {
            "spans": spans.masked_fill(~allowed[..., None], -torch.inf),
            "types": self.types(hidden[:, 0]).float(),
            "anchors": scores.float().masked_fill(anchors < 0, -torch.inf),
        }
        if labels is not None:
            output["loss"] = self.loss(output, labels)

        return output

    def loss(self, output: dict[str, Tensor], labels: dict[str, Tensor]) -> Tensor:
        """Return the sum of the heads' losses in nats per window."""
        facts = labels["facts"]
        if self.form == "wikihop":
            each = output["anchors"].log_softmax(-1).masked_fill(facts < 1, 0)
            return -each.sum() / len(facts)

        spans = output["spans"].unbind(-1)
        loss = span_loss(spans[0], spans[1], labels["spans"])
        if self.form == "natural_questions":
            loss += span_loss(spans[2], spans[3], labels["long_spans"])

        if self.form in ("natural_questions", "hotpotqa"):
            loss += F.cross_entropy(output["types"], labels["types"][:, 0])

        if self.form == "hotpotqa":
            each = F.binary_cross_entropy_with_logits(
                output["anchors"], facts.float(), reduction="none"
            )
            loss += each.masked_fill(facts < 0, 0).sum() / len(facts)

        return loss


class Window(NamedTuple):
    """Input of n tokens: [CLS] question [SEP], each candidate with its [SEP], a part of the context, [SEP]."""

    inputs: dict[str, list[int]]  # of the network
    anchors: list[Span]  # paragraph and sentence, or candidate and 0
    paragraph: NDArray[np.int64]  # (n,), -1: not an answer
    start: NDArray[np.int64]  # (n,) characters in `QuestionRecord.context`
    end: NDArray[np.int64]  # (n,)
    word: NDArray[np.int64]  # (n,) number of its word in the context

    def find(self, start: int, end: int) -> Span | None:
        """Return the tokens of characters of the context, if all of them are in the window."""
        inside = (self.paragraph >= 0) & (self.start < end) & (self.end > start)
        tokens = np.flatnonzero(inside)
        if not len(tokens):
            return None

        first, last = int(tokens[0]), int(tokens[-1])
        if self.start[first] > start or self.end[last] < end:
            return None

        return first, last


def make_windows(
    record: QuestionRecord, tokenizer: Any, section: AnswersTaskConfig, extra: int
) -> list[Window]:
    """Divide a record into inputs of the network.

    Parameters
    ----------
    record
        A question with its context, and, of WikiHop, with candidates.
    tokenizer
        As from `fast_tokenizer`.
    section
        Its `length` is the most tokens of an input, its `stride` the tokens that consecutive inputs share.
    extra
        Number of extra globals. They represent, in order, [CLS], the question's tokens, the candidates, and
        each paragraph of the window with, of HotpotQA, each of its sentences; parts beyond this number have
        none. Their embeddings are those of the tokens, or of [UNK], [SEP] and [MASK] for candidates,
        paragraphs and sentences.

    Returns
    -------
    At least one window. `DataError` if question and candidates leave too few tokens for the context.
    """
    # A text begins with a space: tokens of words depend on it.
    candidates = record.candidates if section.form == "wikihop" else ()
    header = tokenizer.sep_token.join(
        [f" {text}" for text in (record.question, *candidates)]
    )

    size = len(tokenizer(header)["input_ids"])
    if size + section.stride + 1 >= section.length:
        raise DataError(
            f"record {record.id!r}: question and {len(candidates)} candidates have {size} tokens; length "
            f"{section.length} leaves too few tokens for the paragraphs"
        )

    encoded = tokenizer(
        header,
        record.context,
        truncation="only_second",
        max_length=section.length,
        stride=section.stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_token_type_ids=True,
    )

    # Of each character: its paragraph, its sentence or that it is in a title, and its word.
    parts, lengths = [], []
    for number, paragraph in enumerate(record.paragraphs):
        parts.append((number, NONE))
        lengths.append(len(paragraph.heading))
        for sentence, text in enumerate(paragraph.sentences):
            parts.append((number, sentence))
            lengths.append(len(text))

    part_of = np.repeat(np.array(parts), lengths, axis=0)
    visible = np.array([not letter.isspace() for letter in record.context])
    word_of = (visible & ~np.roll(visible, 1)).cumsum()

    windows = []
    for ids, types, offsets in zip(
        encoded["input_ids"],
        encoded["token_type_ids"],
        encoded["offset_mapping"],
        strict=True,
    ):
        types[-1] = 0
        in_context = np.array(types, bool)
        start, end = np.where(in_context[:, None], offsets, 0).T
        start += in_context & ~visible[start]  # a token has the space before it
        first = np.minimum(start, len(visible) - 1)

        # Globals: token and what it represents.
        slots: dict[tuple[int, int, int], int] = {}
        anchors: dict[Span, int] = {}
        owners = []
        separators = 0
        for position, token in enumerate(ids[:-1]):
            unit = token, position, NONE

            if in_context[position]:
                number, sentence = part_of[first[position]].tolist()
                unit = tokenizer.sep_token_id, number, NONE
                slots.setdefault(unit, len(slots))
                if section.form == "hotpotqa" and sentence != NONE:
                    unit = tokenizer.mask_token_id, number, sentence
            elif separators:
                unit = tokenizer.unk_token_id, separators - 1, 0

            slot = slots.setdefault(unit, len(slots))
            owners.append(slot if slot < extra else NONE)
            if unit[2] != NONE and (slot < extra or not extra):
                anchors.setdefault(unit[1:], slot if extra else position)

            separators += token == tokenizer.sep_token_id

        global_ids = [token for token, _, _ in slots]
        inputs = {
            "input_ids": ids,
            "token_type_ids": types,
            "anchors": [*anchors.values()] or [NONE],
            "global_ids": (global_ids + [tokenizer.pad_token_id] * extra)[:extra],
            "owners": [*owners, NONE],
        }

        is_answer = in_context & (part_of[first, 1] != NONE)
        paragraphs = np.where(is_answer, part_of[first, 0], NONE)
        windows.append(
            Window(inputs, [*anchors], paragraphs, start, end, word_of[first])
        )

    return windows


def collate(rows: Sequence[Mapping[str, Any]], pad_id: int) -> dict[str, Tensor]:
    """Return inputs or labels of windows, which are lists of numbers by key, as padded tensors."""
    batch = {}
    for key in rows[0]:
        tensors = [torch.tensor(row[key], dtype=torch.long) for row in rows]
        value = {"input_ids": pad_id, "token_type_ids": 0}.get(key, NONE)
        batch[key] = pad_sequence(tensors, batch_first=True, padding_value=value)
    return batch


def window_labels(
    window: Window, record: QuestionRecord, section: AnswersTaskConfig
) -> dict[str, Any]:
    """Return the true answer of a window.

    Parameters
    ----------
    window
        One of the windows of `record`.
    record
        A question with its answers. Those without a position match all occurrences (TriviaQA): words are
        compared without case, by letters and digits only, without articles at the beginning.
    section
        The task.

    Returns
    -------
    `spans`, first and last token of each occurrence of an answer, without one those of [CLS]; `long_spans`,
    the same of the long answer; `types`, a number among `TYPES`; and `facts`, for each anchor whether it is
    right, 0 or 1.
    """
    spans = set()
    has_positions = any(answer.start is not None for answer in record.answers)
    for answer in record.answers if record.type not in ("yes", "no") else ():
        if answer.paragraph is not None and answer.start is not None:
            start = record.starts[answer.paragraph] + answer.start
            spans.add(window.find(start, start + len(answer.text)))

        words = re.findall(r"\w+", answer.text)
        while words and words[0].lower() in ("a", "an", "the"):
            words = words[1:]

        if words and not has_positions:
            pattern = r"\b" + r"\W+".join(words) + r"\b"
            for match in re.finditer(pattern, record.context, re.IGNORECASE):
                spans.add(window.find(*match.span()))

    known = sorted(span for span in spans if span is not None)

    kind, long = record.type or "short", None
    if record.long_answer is not None:
        long = window.find(*record.bounds(record.long_answer))
        if long is None:
            kind = "null"

    true_anchors = {*record.facts}
    if section.form == "wikihop":
        true_anchors = {(record.candidates.index(record.answers[0].text), 0)}

    return {
        "spans": [token for span in known for token in span] or [0, 0],
        "long_spans": long or (0, 0),
        "types": [TYPES.index(kind)],
        "facts": [int(name in true_anchors) for name in window.anchors] or [NONE],
    }


def prepare(section: AnswersTaskConfig, directory: Path) -> None:
    """Write the records of the three splits."""
    write_splits(
        section.data,
        directory,
        QuestionRecord,
        lambda row: public_record(section.form, row),
        generate_questions,
        section.public,
    )


def train(section: AnswersTaskConfig, home: Path, **options: Any) -> None:
    """Train on a window of each record per epoch and write a model directory; `options` are those of `fit`.

    With probability 0.5, the window is one with an answer, if there is any.
    """
    train, valid, start, tokenizer = begin_training(section, home, QuestionRecord)
    pad_id = tokenizer.pad_token_id
    extra = start.config.num_global_tokens

    def choose(examples: Sequence[Any]) -> dict[str, Any]:
        inputs, labels = [], []
        for record, seed in examples:
            rng = np.random.default_rng(seed)
            windows = make_windows(record, tokenizer, section, extra)
            pairs = [(w.inputs, window_labels(w, record, section)) for w in windows]

            answered = []
            for pair in pairs:
                if any([*pair[1]["spans"], *pair[1]["long_spans"]]):
                    answered.append(pair)

            if answered and rng.random() < 0.5:
                pairs = answered

            window, label = pairs[int(rng.integers(len(pairs)))]
            inputs.append(window)
            labels.append(label)

        return {**collate(inputs, pad_id), "labels": collate(labels, pad_id)}

    network = AnswerNetwork(start.config, section.form)
    settings = LongAnswersSettings(form=section.form)
    fit(network, section, home, start, settings, train, valid, choose, **options)


def predict(
    section: AnswersTaskConfig,
    directory: Path,
    path: Path,
    device: torch.device,
    batch_size: int,
) -> Iterator[dict[str, Any]]:
    """Predict the answers of records.

    Parameters
    ----------
    section
        The task.
    directory
        Its model. `ModelError` if it is of another task.
    path
        Records. `DataError` names a line that is none.
    device
        Where to compute.
    batch_size
        Windows that are computed together.

    Yields
    ------
    For each record its `id` and the result of `decode`.
    """
    model, network, tokenizer = open_trained(directory, LongAnswersSettings, device)
    for record in read_records(path, QuestionRecord):
        windows = make_windows(
            record, tokenizer, section, model.config.num_global_tokens
        )

        scores = []
        for first in range(0, len(windows), batch_size):
            rows = [w.inputs for w in windows[first : first + batch_size]]
            batch = collate(rows, tokenizer.pad_token_id)
            with torch.inference_mode():
                output = network(**{key: x.to(device) for key, x in batch.items()})

            for row in range(len(rows)):
                scores.append({key: x[row].cpu().numpy() for key, x in output.items()})

        yield decode(record, windows, scores, section)


def decode(
    record: QuestionRecord,
    windows: Sequence[Window],
    scores: Sequence[Mapping[str, Any]],
    section: AnswersTaskConfig,
) -> dict[str, Any]:
    """Combine the scores of a record's windows to its prediction.

    Scores of answers are sums of logits minus those of [CLS], which means no answer.

    Parameters
    ----------
    record
        The question.
    windows
        All of its windows.
    scores
        Output of the network for each of them, without padding in front.
    section
        The task. Its form determines the prediction.

    Returns
    -------
    `answer`, with `paragraph`, `start` and `score` of the best span. HotpotQA: also `type` and `facts`, the
    sentences with a positive score. WikiHop: the candidate with the highest sum of scores. Natural Questions:
    `long_answer` and `long_score`, the paragraph with the best long answer, with the `type` of its window,
    and, as in the data set, the best short answer in it.
    """
    prediction: dict[str, Any] = {"id": record.id, "answer": ""}
    if section.form == "natural_questions":
        prediction |= {"type": "null", "long_answer": None, "long_score": None}

    best = -np.inf
    anchors: dict[Span, list[float]] = defaultdict(list)
    for window, output in zip(windows, scores, strict=True):
        spans = output["spans"].astype(float)
        for name, value in zip(window.anchors, output["anchors"], strict=False):
            anchors[name].append(float(value))

        if section.form == "natural_questions":
            for number in {*window.paragraph.tolist()} - {NONE}:
                long = window.find(*record.bounds(number))
                if long is None:
                    continue

                score = float(
                    spans[long[0], 2] + spans[long[1], 3] - spans[0, 2:].sum()
                )
                if score > best:
                    best = score
                    prediction = {
                        "id": record.id,
                        "answer": "",
                        "type": TYPES[int(output["types"].argmax())],
                        "long_answer": number,
                        "long_score": score,
                        **best_answer(record, window, spans, long, section),
                    }
        elif section.form != "wikihop":
            inside = 0, len(spans) - 1
            answer = best_answer(record, window, spans, inside, section)
            if answer and answer["score"] > best:
                best = answer["score"]
                prediction |= answer

    if section.form == "wikihop" and anchors:
        candidate, _ = max(anchors, key=lambda name: sum(anchors[name]))
        prediction["answer"] = record.candidates[candidate]

    if section.form == "hotpotqa":
        total = np.sum([output["types"] for output in scores], axis=0)
        kind = TYPES[int(total.argmax())]
        if kind in ("yes", "no"):
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
    tokens = np.arange(len(window.paragraph))
    allowed = (window.paragraph != NONE) & (tokens >= inside[0]) & (tokens <= inside[1])
    starts, ends = np.where(allowed[:, None], spans[: len(tokens), :2], -np.inf).T

    likely = np.argsort(-starts, kind="stable")[:BEGINNINGS, None]
    fits = (
        (tokens >= likely)
        & (window.paragraph == window.paragraph[likely])
        & (window.word - window.word[likely] < section.answer_words)
    )
    scores = np.where(fits, starts[likely] + ends, -np.inf)
    row, last = np.unravel_index(scores.argmax(), scores.shape)
    if scores[row, last] == -np.inf:
        return {}

    first = likely[row, 0]
    number = int(window.paragraph[first])
    return {
        "answer": record.context[window.start[first] : window.end[last]],
        "paragraph": number,
        "start": int(window.start[first]) - record.starts[number],
        "score": float(scores[row, last] - spans[0, :2].sum()),
    }


def evaluate(
    section: AnswersTaskConfig, path: Path, predictions: Path
) -> dict[str, Any]:
    """Return the official metrics of the data set of the section's `form`.

    `path` has labeled records, `predictions` the predictions of all of them. `DataError` names a file and what
    it lacks.
    """
    records = read_labeled(path, QuestionRecord, section)
    lines = read_predictions(predictions, "answer", records)
    return official_metrics(section.form, list(zip(records, lines, strict=True)))
